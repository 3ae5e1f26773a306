package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// logFile is what a container writes, a line each with its time and stream (source: Kubernetes, CRI, kubelet's container
// logging: `TIME stdout|stderr F|P TEXT`, where P is a part of a line).
type logFile struct {
	mutex sync.Mutex
	path  string
	file  *os.File
}

// longestPart of a line is written as one; a longer line comes in parts.
const longestPart = 16 << 10

func openLog(path string) (*logFile, error) {
	made := &logFile{path: path}
	return made, made.reopen()
}

// reopen makes the file anew after the kubelet has renamed it.
func (l *logFile) reopen() error {
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.file != nil {
		l.file.Close()
	}
	l.file = file
	return nil
}

func (l *logFile) Close() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.file.Close()
}

// connect gives a command that has not started its two outputs. The group is done when both have ended; what is returned
// beside it closes this process's ends, and may be called again.
func (l *logFile) connect(command *exec.Cmd) (*sync.WaitGroup, func(), error) {
	var written sync.WaitGroup
	var ends []*os.File
	finish := func() {
		for _, end := range ends {
			end.Close()
		}
	}
	for stream, output := range map[string]*io.Writer{"stdout": &command.Stdout, "stderr": &command.Stderr} {
		reader, writer, err := os.Pipe()
		if err != nil {
			finish()
			return nil, nil, err
		}
		ends = append(ends, writer)
		*output = writer
		written.Add(1)
		go func() {
			defer written.Done()
			defer reader.Close()
			l.copy(stream, reader)
		}()
	}
	return &written, finish, nil
}

// copy writes until the stream ends.
func (l *logFile) copy(stream string, from io.Reader) {
	lines := bufio.NewReaderSize(from, longestPart)
	for {
		part, err := lines.ReadSlice('\n')
		tag, text := "F", part
		if err == nil {
			text = part[:len(part)-1]
		} else if err == bufio.ErrBufferFull {
			tag = "P"
		} else if len(part) == 0 {
			return
		}
		line := time.Now().UTC().Format(time.RFC3339Nano) + " " + stream + " " + tag + " " + string(text) + "\n"
		l.mutex.Lock()
		_, _ = l.file.WriteString(line)
		l.mutex.Unlock()
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}
