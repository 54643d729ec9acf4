"""What DESIGN.md and ACCEPTANCE.md promise about rounds, seen from outside: public names and the wire."""
