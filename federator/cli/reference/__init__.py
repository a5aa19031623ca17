"""The commands' own reference: man pages and completion of shells, made from their parsers."""
