package main

import (
	"io"
	"time"
)

// paced is a body that comes in pieces, with a pause before each.
type paced struct {
	rest, now []byte
	piece     int
	pause     time.Duration
}

func (p *paced) Read(into []byte) (int, error) {
	if len(p.now) == 0 {
		if len(p.rest) == 0 {
			return 0, io.EOF
		}
		time.Sleep(p.pause)
		length := min(p.piece, len(p.rest))
		p.now, p.rest = p.rest[:length], p.rest[length:]
	}
	count := copy(into, p.now)
	p.now = p.now[count:]
	return count, nil
}

func (p *paced) Close() error { return nil }

// readAll rests after so many bytes, if it is told how many.
func readAll(body io.Reader, atOnce int) ([]byte, error) {
	if atOnce == 0 {
		return io.ReadAll(body)
	}
	var whole []byte
	for {
		piece, err := io.ReadAll(io.LimitReader(body, int64(atOnce)))
		whole = append(whole, piece...)
		if err != nil || len(piece) < atOnce {
			return whole, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
