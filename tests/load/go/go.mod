module berth/load

go 1.24
