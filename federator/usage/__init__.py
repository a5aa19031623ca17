"""Accounting: what became of every GPU-second; pure, over records that the history keeps."""
