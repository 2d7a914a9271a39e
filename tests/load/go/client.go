package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// client is one class: a transport of its own, as every program has.
type client struct {
	j      *job
	c      class
	http   *http.Client
	opened atomic.Int64
}

func newClient(j *job, c class) *client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(j.CA))
	k := &client{j: j, c: c}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		// A client that is parked until a kcp is back has not begun its handshake.
		TLSHandshakeTimeout: 40 * time.Second,
		ForceAttemptHTTP2:   c.Protocol == "h2",
		DisableKeepAlives:   c.Fresh,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			say("c\t%d\t%d", c.Number, k.opened.Add(1))
			return dialer.DialContext(ctx, network, address)
		},
	}
	if c.Protocol != "h2" {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	k.http = &http.Client{Transport: transport}
	return k
}

func (k *client) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, "https://"+k.j.Front+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body == nil {
		request.Body, request.GetBody, request.ContentLength = http.NoBody, nil, 0
	}
	if body != nil && k.c.Pieces > 0 {
		pause := time.Duration(k.c.PiecePauseMs) * time.Millisecond
		piece := (len(body) + k.c.Pieces - 1) / k.c.Pieces
		request.Body, request.GetBody = &paced{rest: body, piece: piece, pause: pause}, nil
	}
	request.Header.Set("Authorization", "Bearer "+k.j.Token)
	request.Header.Set("Content-Type", "application/json")
	if k.c.DelayMs > 0 {
		request.Header.Set("Kcp-Stand-In-Delay", fmt.Sprint(k.c.DelayMs))
	}
	return request, nil
}

// ask returns the body of a good answer.
func (k *client) ask(method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	request, err := k.request(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	answer, err := k.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	whole, err := readAll(answer.Body, k.c.ReadAtOnce)
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if answer.StatusCode >= 300 {
		return nil, fmt.Errorf("%d: %.200s", answer.StatusCode, whole)
	}
	return whole, nil
}

func (k *client) run(g *gate, stream int) {
	began := time.Now()
	for count := 1; g.next(k.j, k.c, began); count++ {
		began = time.Now()
		name, method, path := "", http.MethodGet, k.j.ConfigMaps+"/"+k.j.Seed
		var body []byte
		switch k.c.Asks {
		case "post", "upload", "largeupload":
			name = fmt.Sprintf("%s-%d-%d-%d", k.j.Run, k.c.Number, stream, count)
			method, path = http.MethodPost, k.j.ConfigMaps
			body, _ = json.Marshal(map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": map[string]any{"name": name, "labels": map[string]string{"load": k.j.Run}},
				"data":     map[string]string{"key": strings.Repeat("x", k.c.DataBytes)},
			})
			if missing := k.c.BodyBytes - len(body); missing > 0 {
				body = append(body, bytes.Repeat([]byte(" "), missing)...)
			}
		case "list", "slowread":
			path = k.j.ConfigMaps + "?labelSelector=load-bulk%3D" + k.j.Run
		}
		whole, err := k.ask(method, path, body)
		if err == nil && len(whole) < k.c.ListBytes {
			err = fmt.Errorf("a list of %d bytes is not whole", len(whole))
		}
		now := time.Now()
		if err != nil {
			say("f\t%d\t%s\t%s", k.c.Number, name, oneLine(err.Error()))
			continue
		}
		say("a\t%d\t%d\t%d", k.c.Number, now.UnixMicro()-k.j.BeganUnixUs, now.Sub(began).Microseconds())
		if name != "" {
			say("w\t%d\t%s", k.c.Number, name)
		}
	}
}

type event struct {
	Type   string `json:"type"`
	Object struct {
		Code     int `json:"code"`
		Metadata struct {
			Name            string `json:"name"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	} `json:"object"`
}

// watch resumes from the last resource version, for ever.
func (k *client) watch() {
	version := k.j.From
	for {
		path := k.j.ConfigMaps + "?watch=true&allowWatchBookmarks=true&labelSelector=load%3D" + k.j.Run + "&resourceVersion=" + version
		request, err := k.request(context.Background(), http.MethodGet, path, nil)
		if err != nil {
			return
		}
		answer, err := k.http.Do(request)
		if err == nil && answer.StatusCode >= 300 {
			answer.Body.Close()
			err = fmt.Errorf("status %d", answer.StatusCode)
		}
		if err != nil {
			say("f\t%d\t\t%s", k.c.Number, oneLine(err.Error()))
			time.Sleep(50 * time.Millisecond)
			continue
		}
		gone := k.follow(answer.Body, &version)
		answer.Body.Close()
		if !gone {
			say("r\t%d\tresumed", k.c.Number)
			continue
		}
		say("r\t%d\trelisted", k.c.Number)
		var list struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
			} `json:"metadata"`
		}
		if whole, err := k.ask(http.MethodGet, k.j.ConfigMaps+"?limit=1", nil); err == nil && json.Unmarshal(whole, &list) == nil {
			version = list.Metadata.ResourceVersion
		}
	}
}

// follow reads events until the watch ends; true when its version is too old.
func (k *client) follow(body io.Reader, version *string) bool {
	lines := bufio.NewReaderSize(body, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return false
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch e.Type {
		case "ADDED":
			say("t\t%d\t%s\t0", k.c.Number, e.Object.Metadata.Name)
		case "DELETED":
			say("t\t%d\t%s\t1", k.c.Number, e.Object.Metadata.Name)
		case "ERROR":
			return e.Object.Code == 410
		}
		say("a\t%d\t%d\t0", k.c.Number, time.Now().UnixMicro()-k.j.BeganUnixUs)
		if e.Object.Metadata.ResourceVersion != "" {
			*version = e.Object.Metadata.ResourceVersion
		}
	}
}
