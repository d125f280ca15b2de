"""Rules of replication, the state of replicas, and learning. Mostly pure."""
