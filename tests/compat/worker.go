// A worker on flowSvr's own SDK: three stages, failures that a task asks for, and a record of all that it does.
package main

import (
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/niuniumart/asyncflow/taskutils/constant"
	"github.com/niuniumart/asyncflow/worker/src/tasksdk"
)

// What a task asks for: so many failures in one of its stages, and how long its last stage takes.
type wish struct {
	FailIn  string `json:"fail_in"`
	Fails   int    `json:"fails"`
	SleepMs int    `json:"sleep_ms"`
}

// What the worker writes down of an attempt, when it begins and once its result was answered.
type entry struct {
	What     string  `json:"what"`
	TaskId   string  `json:"task_id"`
	Stage    string  `json:"stage"`
	Retries  int     `json:"retries"`
	Status   int     `json:"status"`
	Priority int64   `json:"priority"`
	Refused  bool    `json:"refused"`
	SleepMs  int     `json:"sleep_ms"`
	At       float64 `json:"at"`
}

var (
	recording sync.Mutex
	file      *os.File
	next      = map[string]string{"cut": "mix", "mix": "send"}
)

type steps struct {
	tasksdk.TaskBase
	wish  wish
	begun entry
}

func (p *steps) ContextLoad() error {
	return json.Unmarshal([]byte(p.TaskContext), &p.wish)
}

func (p *steps) HandleProcess() error {
	p.begun = entry{What: "begun", TaskId: p.TaskId, Stage: p.TaskStage, Retries: p.CrtRetryNum, Priority: p.Priority}
	if _, ok := next[p.TaskStage]; !ok {
		p.begun.SleepMs = p.wish.SleepMs
	}
	record(p.begun)
	if p.TaskStage == p.wish.FailIn && p.CrtRetryNum < p.wish.Fails {
		return errors.New("a failure that the task asked for")
	}
	if stage, ok := next[p.TaskStage]; ok {
		p.TaskStage = stage
	} else {
		time.Sleep(time.Duration(p.wish.SleepMs) * time.Millisecond)
		p.Base().Status = int(constant.TASK_STATUS_SUCC)
	}
	return nil
}

func (p *steps) HandleFinish() {}

func (p *steps) SetTask() error {
	err := p.TaskBase.SetTask()
	told := p.begun
	told.What, told.Status, told.Refused = "told", p.Base().Status, err != nil
	record(told)
	return err
}

func record(what entry) {
	recording.Lock()
	defer recording.Unlock()
	what.At = float64(time.Now().UnixMilli()) / 1000
	line, _ := json.Marshal(what)
	if _, err := file.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

func main() {
	var err error
	if file, err = os.OpenFile(os.Getenv("COMPAT_RECORD"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		panic(err)
	}
	tasksdk.InitSvr(os.Getenv("COMPAT_BASE"), os.Getenv("COMPAT_REDIS"), os.Getenv("COMPAT_REDIS_PASSWORD"))
	task := tasksdk.TaskHandler{TaskType: "steps", NewProc: func() tasksdk.TaskIntf { return new(steps) }}
	tasksdk.RegisterHandler(&task)
	manager := tasksdk.TaskMgr{TaskType: task.TaskType}
	manager.Schedule()
}
