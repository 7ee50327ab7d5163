"""The sweep itself: ask, hand out, tell; baseline, confirmation, resume. The only writer of the storage."""
