"""The agent of one site: a pure core that decides, and a shell that carries out."""
