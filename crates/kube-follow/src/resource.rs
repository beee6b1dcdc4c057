//! The requirements on a type for listing and watching it.

/// Ties a type with a field `metadata` to the place in the API of the whole type.
#[macro_export]
macro_rules! resource {
    ($type:ty, $whole:ty) => {
        impl ::k8s_openapi::Resource for $type {
            const API_VERSION: &'static str = <$whole as ::k8s_openapi::Resource>::API_VERSION;
            const GROUP: &'static str = <$whole as ::k8s_openapi::Resource>::GROUP;
            const KIND: &'static str = <$whole as ::k8s_openapi::Resource>::KIND;
            const VERSION: &'static str = <$whole as ::k8s_openapi::Resource>::VERSION;
            const URL_PATH_SEGMENT: &'static str = <$whole as ::k8s_openapi::Resource>::URL_PATH_SEGMENT;
            type Scope = <$whole as ::k8s_openapi::Resource>::Scope;
        }

        impl ::k8s_openapi::Metadata for $type {
            type Ty = ::kube::core::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }
            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }
    };
}
