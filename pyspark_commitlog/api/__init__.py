"""Python API besides `Producer` and `Consumer`: a root, its topics, replicas and maintenance."""
