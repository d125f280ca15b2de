"""What users call from Python besides `Producer` and `Consumer`: a root, its topics, replicas and maintenance."""
