"""Where does the event log live? One Protocol, one contract suite, several stores."""
