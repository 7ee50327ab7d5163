"""Everything that knows SGLang: launch command, process, client, failure classes."""
