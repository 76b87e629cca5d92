//! fakenvml
