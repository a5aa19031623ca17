"""Nouns: frozen values that every other layer speaks in. Nothing here decides or does I/O."""
