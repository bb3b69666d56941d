//! Wire types and constants, one module a program; types only.
