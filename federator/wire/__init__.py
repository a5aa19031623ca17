"""Messages, frames and channels between the processes."""
