"""What exists for those who develop the platform, and not for its users; see README.md here."""
