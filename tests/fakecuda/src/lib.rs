//! fakecuda
