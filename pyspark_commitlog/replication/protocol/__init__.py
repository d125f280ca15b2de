"""Rules of replication, the state of replicas in entries, and how a root learns an entry. Mostly pure."""
