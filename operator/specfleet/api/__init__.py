"""The product's language: models that users write and read, CRD generation, conditions, names. Pure."""
