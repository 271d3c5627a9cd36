"""The generated pages of the documentation, one module a page; ``tools/gen_docs.py`` writes them."""
