"""Messages, frames and channels between the processes.

``framing`` says which bytes a message is. Daemon and agent: ``agent_protocol``, and what the core
itself says and hears, ``federator.model.site_message``. Commands and daemon: ``client_protocol``,
and the answers, ``replies``.
"""
