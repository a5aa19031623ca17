"""The event log's stores: one Protocol, one contract suite, several stores."""
