module lazuli/tests/emulator

go 1.26.0
