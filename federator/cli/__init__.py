"""Commands: ``federator`` for admins; ``fsbatch fsqueue fscancel fsinfo`` for users."""
