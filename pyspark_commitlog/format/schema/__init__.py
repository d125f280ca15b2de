"""Schemas of typed topics: columns, types, DDL."""
