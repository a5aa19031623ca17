"""What is done: the pass, its auction, and what sites report."""
