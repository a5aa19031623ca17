"""The keys of ``epilog`` in node.json.

Apart from the epilog itself: the prolog reads some of them, and should not load all that an epilog
does.
"""

from fednode import config

SCHEMA = {
    "enabled": config.Key(True, config.flag),
    "limit_s": config.Key(20, config.number(1, 120)),
    "orphans": config.Key(True, config.flag),
    "kill_grace_s": config.Key(1, config.number(0, 30)),
    "exclusive_nodes": config.Key(False, config.flag),
    "min_uid": config.Key(1000, config.number(1, 1 << 32)),
    "shm": config.Key(True, config.flag),
    "gpu_memory": config.Key("warn", config.one_of("drain", "warn", "off")),
    "gpu_memory_mib": config.Key(1024, config.number(1, 1 << 24)),
    "gpu_wait_s": config.Key(3, config.number(0, 60)),
    "nvidia_smi_timeout_s": config.Key(5, config.number(0.1, 60)),
    "dcgm_mapping_dir": config.Key(None, config.optional_path),
    "usage_dir": config.Key(None, config.optional_path),
}  # type: config.Schema
