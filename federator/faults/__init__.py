"""The fault simulator: checks in virtual time that nothing is lost or runs twice."""
