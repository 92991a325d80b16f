"""What worker processes need: a mailbox in shared memory, and an allocator that keeps what it freed."""
