"""Policies to laptops, and experience from them."""
