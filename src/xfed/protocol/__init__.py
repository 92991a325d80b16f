"""The words everyone shares: Message, Client, Cohort, Server, Uploads, Algorithm."""
