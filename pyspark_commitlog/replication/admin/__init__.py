"""What operators do with replicas: create, add, move, replace, recover."""
