//! Enums in JSON: the names of the `.proto`. A number that has no name stays a number.

macro_rules! as_name {
    ($module:ident, $kind:ty, $doc:literal) => {
        #[doc = $doc]
        pub mod $module {
            use serde::de::{Deserialize, Deserializer, Error};
            use serde::ser::Serializer;

            /// The name.
            #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
            pub fn serialize<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
                match <$kind>::try_from(*number) {
                    Ok(value) => serializer.serialize_str(value.as_str_name()),
                    Err(_) => serializer.serialize_i32(*number),
                }
            }

            /// From the name.
            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
                let name = String::deserialize(deserializer)?;
                let unknown = || D::Error::custom(format!("there is no {name} in {}", stringify!($module)));
                <$kind>::from_str_name(&name).map(i32::from).ok_or_else(unknown)
            }
        }
    };
}

as_name!(data_type, crate::messages::DataType, "Datatypes of a model's configuration.");
as_name!(kind, crate::messages::model_instance_group::Kind, "Where the instances of a group run.");
