"""What travels between the processes: messages, frames and the channels."""
