"""Evidence becomes what other proposal lengths would do. Pure."""
