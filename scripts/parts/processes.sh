# Sourced: child processes of a script. Each is ended by its own id, the newest first, when the script
# ends in whatever way.

started_processes=()

# start LOG COMMAND...: in the background, output to LOG. The id is in $!.
start() {
    local log=$1
    shift
    "$@" >"$log" 2>&1 &
    started_processes+=($!)
}

stop_all() {
    local index pid turn
    for ((index = ${#started_processes[@]} - 1; index >= 0; index--)); do
        pid=${started_processes[index]}
        kill -TERM "$pid" 2>/dev/null || continue
        for ((turn = 0; turn < 100; turn++)); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        if kill -KILL "$pid" 2>/dev/null; then
            say "process $pid did not end within 10 s and was killed"
        fi
        wait "$pid" 2>/dev/null || true
    done
    started_processes=()
}

# wait_for SECONDS WHAT PID CONDITION...: until the condition holds; fails when time is up or when the
# process that should bring it about has ended.
wait_for() {
    local seconds=$1 what=$2 pid=$3 turn
    shift 3
    for ((turn = 0; turn < seconds * 10; turn++)); do
        "$@" >/dev/null 2>&1 && return 0
        if ! kill -0 "$pid" 2>/dev/null; then
            say "the process that should give $what has ended"
            return 1
        fi
        sleep 0.1
    done
    say "no $what within $seconds s"
    return 1
}
