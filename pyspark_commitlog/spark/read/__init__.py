"""The source's readers: which records a query reads, in which plans, from which offsets."""
