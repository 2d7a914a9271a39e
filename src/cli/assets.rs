//! `berth assets ...`: the store of component programs. Needs no daemon, and is refused while one is provisioning.

use super::exit::{CliError, Exit};
use super::terminal;
use super::{Place, units};
use crate::assets::catalogue::{Catalogue, Content, Entry, Source, is_sha256};
use crate::assets::check::{Health, check};
use crate::assets::gc::{self, Asset};
use crate::assets::progress::{self, Advance};
use crate::assets::{AssetError, Named, Store, import, operators, usage};
use crate::config::{Config, Surroundings};
use crate::layout::Layout;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Subcommand)]
pub enum AssetsVerb {
    /// Show every asset, who needs it, and what the catalogues ask for that is not here
    List {
        /// JSON instead of a table
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: Configuration,
    },
    /// Put a component into the catalogue, pinned by sha256, and fetch it; the next start of the daemon takes it
    #[command(disable_version_flag = true)]
    Add(Add),
    /// Take files brought by hand: wheels, programs, archives, packed assets. Each is verified against its pin
    #[command(disable_version_flag = true)]
    Import(Import),
    /// Compress assets as they rest (zstd -19 --long=27): minutes each, once
    Pack {
        /// Of these components only
        components: Vec<String>,
    },
    /// Read everything and compare it with what was installed
    Verify {
        /// Unpack anew what is damaged, or remove it, to be made again by the next start
        #[arg(long)]
        repair: bool,
        #[command(flatten)]
        config: Configuration,
    },
    /// Remove what nothing runs from, no daemon may start, and neither a catalogue nor the configuration names
    Gc {
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        config: Configuration,
    },
}

#[derive(Debug, Args)]
pub struct Configuration {
    /// Configuration file of `berth up`; what it names is needed
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Add {
    component: String,
    #[arg(long, value_name = "VERSION")]
    version: String,
    /// A file, or an https URL
    #[arg(long, value_name = "FILE|URL")]
    from: String,
    /// Of the file as it comes
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    sha256: String,
    /// The program, where the file is an archive: bin/kcp
    #[arg(long, value_name = "MEMBER")]
    member: Option<String>,
    /// Certificate authority of the server (PEM) [default: those the host trusts]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Import {
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What the one file is, where no catalogue names its sha256
    #[arg(long, value_name = "COMPONENT", requires = "sha256")]
    component: Option<String>,
    /// [default: the catalogue's]
    #[arg(long, value_name = "VERSION", requires = "component")]
    version: Option<String>,
    /// What the file must have
    #[arg(long, value_name = "HEX", requires = "component", value_parser = sha256)]
    sha256: Option<String>,
    /// The program, where the file is an archive: bin/kcp
    #[arg(long, value_name = "MEMBER", requires = "component")]
    member: Option<String>,
}

fn sha256(text: &str) -> Result<String, String> {
    let text = text.to_ascii_lowercase();
    if is_sha256(&text) { Ok(text) } else { Err("a sha256 has 64 hexadecimal digits".to_owned()) }
}

pub(super) async fn run(place: &Place, verb: AssetsVerb) -> Result<Exit, CliError> {
    let layout = place.layout()?;
    let root = layout.assets();
    crate::preflight::create(&[layout.state()])?;
    let catalogue = operators::catalogue(&root).map_err(AssetError::from)?;
    match verb {
        AssetsVerb::List { json, config } => {
            let (_, assets) = survey(place, &layout, &catalogue, &config)?;
            list(&assets, &catalogue, json)
        }
        AssetsVerb::Add(add) => self::add(&root, catalogue, add).await,
        AssetsVerb::Import(args) => bring(&root, &catalogue, &args),
        AssetsVerb::Pack { components } => pack(&root, &components),
        AssetsVerb::Verify { repair, config } => {
            let (store, assets) = survey(place, &layout, &catalogue, &config)?;
            verify(&store, &assets, repair)
        }
        AssetsVerb::Gc { dry_run, config } => {
            let (store, assets) = survey(place, &layout, &catalogue, &config)?;
            collect(&store, &assets, dry_run)
        }
    }
}

/// Everything in the store, with who needs it. The store stays open, so that nobody begins to need more.
fn survey(
    place: &Place,
    layout: &Layout,
    catalogue: &Catalogue,
    config: &Configuration,
) -> Result<(Store, Vec<Asset>), CliError> {
    let configured = match &config.config {
        Some(path) => configured(Config::load(Some(path), &place.overrides()?, &Surroundings::read())?),
        None => Vec::new(),
    };
    let store = Store::open(&layout.assets()).map_err(AssetError::from)?;
    let usage = usage::of(&store, layout, catalogue, &configured).map_err(AssetError::from)?;
    let assets = gc::assets(&store, &usage).map_err(AssetError::from)?;
    Ok((store, assets))
}

fn configured(config: Config) -> Vec<PathBuf> {
    let paths = config.components;
    let programs = [
        paths.postgres,
        paths.openbao,
        paths.kine,
        paths.kube_apiserver,
        paths.kube_controller_manager,
        paths.kcp,
        paths.k3s,
        paths.ccm,
    ];
    programs.into_iter().filter_map(|setting| setting.value).collect()
}

fn list(assets: &[Asset], catalogue: &Catalogue, json: bool) -> Result<Exit, CliError> {
    let missing = usage::missing(assets, catalogue);
    if json {
        let value = serde_json::json!({ "assets": assets, "missing": missing });
        terminal::say(&format!("{value:#}"))?;
        return Ok(Exit::Ok);
    }
    let mut rows = vec![["COMPONENT", "VERSION", "SIZE", "PACKED", "DIGEST", "NEEDED"].map(str::to_owned)];
    for asset in assets {
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), units::bytes);
        rows.push([
            asset.component.clone().unwrap_or_else(|| "(torn)".to_owned()),
            asset.version.clone().unwrap_or_default(),
            size(asset.size),
            size(asset.packed),
            asset.digest.chars().take(DIGEST_SHOWN).collect(),
            asset.needed.as_ref().map_or_else(|| "no".to_owned(), ToString::to_string),
        ]);
    }
    for (component, version) in missing {
        let not_here = "is not here yet".to_owned();
        rows.push([component, version, "-".to_owned(), "-".to_owned(), "-".to_owned(), not_here]);
    }
    for line in table(&rows) {
        terminal::say(&line)?;
    }
    Ok(Exit::Ok)
}

/// Enough to tell digests apart, and to find the directory.
const DIGEST_SHOWN: usize = 12;

fn table<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

async fn add(root: &Path, catalogue: Catalogue, args: Add) -> Result<Exit, CliError> {
    let Add { component, version, from, sha256, member, ca } = args;
    let content = Content::of_a_program(&component, sha256, member);
    let source = if from.contains("://") {
        Source::Https { url: from, ca: ca.map(std::path::absolute).transpose()?, content }
    } else {
        Source::File { path: std::path::absolute(from)?, content }
    };
    let entry = Entry { version, licence: String::new(), note: String::new(), source };
    let with_it = operators::with(catalogue, &component, entry.clone()).map_err(AssetError::from)?;
    let store = Arc::new(Store::open(root).map_err(AssetError::from)?);
    let progress = progress::for_stderr();
    // First: an entry that cannot be fetched would stop the daemon's next start.
    let path =
        crate::assets::fetch(&store, &with_it, &component, &*progress).await.map_err(AssetError::from)?;
    operators::add(root, &component, entry).map_err(AssetError::from)?;
    terminal::say(&path.display().to_string())?;
    Ok(Exit::Ok)
}

fn bring(root: &Path, catalogue: &Catalogue, args: &Import) -> Result<Exit, CliError> {
    let named = match (&args.component, &args.sha256) {
        (Some(component), Some(sha256)) => Some(Named {
            component: component.clone(),
            version: args.version.clone(),
            sha256: sha256.clone(),
            member: args.member.clone(),
        }),
        _ => None,
    };
    if named.is_some() && args.files.len() > 1 {
        return Err(CliError::Usage("--component and --sha256 are about one file".to_owned()));
    }
    let store = Store::open(root).map_err(AssetError::from)?;
    let progress = progress::for_stderr();
    for file in &args.files {
        let name = file.display().to_string();
        progress.started(&name, "verifying and unpacking");
        let tell = |done, total| progress.advanced(&name, Advance::Bytes { done, total });
        let record = import(&store, catalogue, file, named.as_ref(), &tell).map_err(AssetError::from)?;
        terminal::say(&format!("{} {}  {}", record.component, record.version, record.digest))?;
    }
    Ok(Exit::Ok)
}

fn pack(root: &Path, components: &[String]) -> Result<Exit, CliError> {
    let store = Store::open(root).map_err(AssetError::from)?;
    // This very program is not worth minutes: it is copied again from where it was started.
    let wanted = |name: &String| {
        if components.is_empty() { name != "berth" } else { components.contains(name) }
    };
    let records: Vec<_> = store.records().filter(|record| wanted(&record.component)).cloned().collect();
    if let Some(missing) =
        components.iter().find(|name| !records.iter().any(|record| record.component == **name))
    {
        return Err(CliError::NotFound(format!("{missing} is not in the asset store")));
    }
    let mut work = Vec::new();
    for record in records {
        let rests = store.packed(&record.digest);
        work.push((record.clone(), rests, store.packing(&record).map_err(AssetError::from)?));
    }
    // A daemon that starts meanwhile must not wait for minutes.
    drop(store);
    let progress = progress::for_stderr();
    for (record, rests, packing) in work {
        if let Some(packing) = packing {
            progress.started(&record.component, &format!("packing {}", record.version));
            let tell = |done, total| progress.advanced(&record.component, Advance::Packed { done, total });
            packing.run(&tell).map_err(AssetError::from)?;
        }
        terminal::say(&rests.display().to_string())?;
    }
    Ok(Exit::Ok)
}

fn verify(store: &Store, assets: &[Asset], repair: bool) -> Result<Exit, CliError> {
    let mut exit = Exit::Ok;
    for asset in assets {
        let what = what(asset);
        for health in check(store, asset, repair).map_err(AssetError::from)? {
            terminal::say(&match health {
                Health::Sound => format!("ok        {what}"),
                Health::Repaired(why) => format!("repaired  {what}: {why}"),
                Health::Removed(why) => format!("removed   {what}: {why}"),
                Health::Damaged(why) => {
                    exit = Exit::Failed;
                    format!("damaged   {what}: {why}")
                }
            })?;
        }
    }
    Ok(exit)
}

fn collect(store: &Store, assets: &[Asset], dry_run: bool) -> Result<Exit, CliError> {
    let unneeded = assets.iter().filter(|asset| asset.needed.is_none());
    let freed = unneeded.map(|asset| asset.size.unwrap_or(0) + asset.packed.unwrap_or(0)).sum();
    if !dry_run {
        gc::collect(store, assets).map_err(AssetError::from)?;
    }
    for asset in assets {
        terminal::say(&match &asset.needed {
            Some(needed) => format!("stays    {}: {needed}", what(asset)),
            None => format!("{}  {}", if dry_run { "unneeded" } else { "removed " }, what(asset)),
        })?;
    }
    terminal::say(&format!("{} {}", units::bytes(freed), if dry_run { "would be free" } else { "free" }))?;
    Ok(Exit::Ok)
}

fn what(asset: &Asset) -> String {
    let digest: String = asset.digest.chars().take(DIGEST_SHOWN).collect();
    match (&asset.component, &asset.version) {
        (Some(component), Some(version)) => format!("{component} {version} ({digest})"),
        _ => format!("({digest})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_as_wide_as_its_widest_cells_and_no_wider() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned);
        assert_eq!(table(&[row(["A", "B"]), row(["long", "b"])]), ["A     B", "long  b"]);
    }

    #[test]
    fn a_digest_is_taken_in_any_case_and_nothing_else_for_one() {
        assert_eq!(sha256(&"AB".repeat(32)).unwrap(), "ab".repeat(32));
        assert!(sha256("beef").is_err());
        assert!(sha256(&"xy".repeat(32)).is_err());
    }
}
