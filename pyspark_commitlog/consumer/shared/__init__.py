"""Views, decoded frames and the watcher, shared by a process' consumers."""
