"""A site's offers: places, victims, reservations and the score."""
