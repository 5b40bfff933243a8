"""Families of environments that share their spaces."""
