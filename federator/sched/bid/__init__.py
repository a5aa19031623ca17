"""What a site offers: places, victims, reservations and the score."""
