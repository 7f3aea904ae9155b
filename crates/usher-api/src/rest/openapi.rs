//! The description of the API, made of the table that answers it.

use http::Method;
use utoipa::openapi::path::{
    HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn, PathItemBuilder,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type,
};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, OpenApiBuilder, PathsBuilder, Ref, RefOr,
    Required, ResponseBuilder, ResponsesBuilder, ServerBuilder,
};

use super::document::{Field, Kind};
use super::{Route, routes};
use crate::browsers::calls::{self, Does, Line};

/// The description, as JSON.
pub(crate) fn document() -> String {
    let mut paths = PathsBuilder::new();
    let envelope = RefOr::Ref(Ref::from_schema_name("Envelope"));
    for route in routes() {
        let item =
            PathItemBuilder::new().operation(method(&route.method), operation(&route, &envelope));
        paths = paths.path(route.path.clone(), item.build());
    }
    for line in &calls::LINES {
        let item =
            PathItemBuilder::new().operation(method(&line.method), browsers(line, &envelope));
        paths = paths.path(path_of(line), item.build());
    }
    paths = paths.path(
        LIVE,
        PathItemBuilder::new()
            .operation(HttpMethod::Get, live(&envelope))
            .build(),
    );
    paths = paths.path(
        ROOM_HISTORY,
        PathItemBuilder::new()
            .operation(HttpMethod::Get, room_history(&envelope))
            .build(),
    );
    let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let components = ComponentsBuilder::new()
        .schema("Envelope", described())
        .security_scheme("token", token);
    let info = InfoBuilder::new()
        .title("Usher")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Compatible with the Cloudflare v4 API, less what is answered 501. What is under \
             browser-rendering is under browser-run, too",
        ));
    let all = OpenApiBuilder::new()
        .info(info)
        .servers(Some([ServerBuilder::new().url("/client/v4").build()]))
        .paths(paths)
        .components(Some(components.build()))
        .security(Some([SecurityRequirement::new(
            "token",
            Vec::<String>::new(),
        )]))
        .build();
    serde_json::to_string(&all).expect("a description is JSON")
}

/// The one answer that has no end, and so no place in the table: `dashboard::live` gives it.
const LIVE: &str = "/usher/live";

/// What that has seen of a room: it has the samples, so it answers here, too.
const ROOM_HISTORY: &str = "/usher/rooms/{room_id}/history";

fn room_history(envelope: &RefOr<Schema>) -> OperationBuilder {
    let answer = |text: &str| {
        let content = ContentBuilder::new().schema(Some(envelope.clone())).build();
        ResponseBuilder::new()
            .description(text)
            .content("application/json", content)
            .build()
    };
    let room = ParameterBuilder::new()
        .name("room_id")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)));
    OperationBuilder::new()
        .operation_id(Some("get_waiting_room_history"))
        .summary(Some(
            "Shows the last ten minutes of a waiting room, a sample each second, oldest first",
        ))
        .parameter(room)
        .responses(
            ResponsesBuilder::new()
                .response("200", answer("Done"))
                .response("4XX", answer("Refused: errors says why"))
                .build(),
        )
}

fn live(envelope: &RefOr<Schema>) -> OperationBuilder {
    let text = ObjectBuilder::new().schema_type(Type::String);
    let events = ContentBuilder::new()
        .schema(Some(Schema::from(text.build())))
        .build();
    let events = ResponseBuilder::new()
        .description(
            "Server-sent events: state (as get_state shows it) whenever it changes, history (the last ten minutes) once, figures each second, and with them how browsers stand where there are some",
        )
        .content("text/event-stream", events)
        .build();
    let refused = ContentBuilder::new().schema(Some(envelope.clone())).build();
    let refused = ResponseBuilder::new()
        .description("Refused: errors says why")
        .content("application/json", refused)
        .build();
    let full = ResponseBuilder::new()
        .description("64 streams are open: come again after Retry-After")
        .build();
    OperationBuilder::new()
        .operation_id(Some("watch_state"))
        .summary(Some(
            "Streams the state of this node and its figures, until the client has enough",
        ))
        .responses(
            ResponsesBuilder::new()
                .response("200", events)
                .response("4XX", refused)
                .response("503", full)
                .build(),
        )
}

/// Under one of the prefixes; the other one is the same.
fn path_of(line: &Line) -> String {
    format!("/accounts/{{account_id}}/browser-rendering/{}", line.path)
}

/// A call of browsers. What it is answered depends on what answers it.
fn browsers(line: &Line, envelope: &RefOr<Schema>) -> OperationBuilder {
    let any = || {
        let anything = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
        let anything = ContentBuilder::new().schema(Some(Schema::from(anything.build())));
        let anything = anything.build();
        ResponseBuilder::new().content("application/json", anything)
    };
    let refused = |text: &str| match line.path.starts_with("devtools/") {
        true => any().description(text).build(),
        false => {
            let content = ContentBuilder::new().schema(Some(envelope.clone())).build();
            let refused = ResponseBuilder::new().content("application/json", content);
            refused.description(text).build()
        }
    };
    let responses = ResponsesBuilder::new();
    let responses = match line.does {
        Does::Connect => {
            let switched = ResponseBuilder::new().description("A WebSocket from here on");
            responses.response("101", switched.build())
        }
        Does::Read | Does::Edit => responses.response("200", any().description("Done").build()),
    };
    let responses = responses
        .response("4XX", refused("Refused, and why"))
        .response(
            "5XX",
            refused("Not built, no browser for now, or the node did not do it"),
        );
    let operation = OperationBuilder::new()
        .operation_id(Some(line.operation))
        .summary(Some(line.summary))
        .responses(responses.build());
    with_parameters(operation, &path_of(line))
}

fn method(method: &Method) -> HttpMethod {
    match *method {
        Method::POST => HttpMethod::Post,
        Method::PUT => HttpMethod::Put,
        Method::PATCH => HttpMethod::Patch,
        Method::DELETE => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}

fn operation(route: &Route, envelope: &RefOr<Schema>) -> OperationBuilder {
    let operation = OperationBuilder::new()
        .operation_id(Some(route.operation.clone()))
        .summary(Some(route.summary));
    let mut operation = with_parameters(operation, &route.path);
    if let Some(fields) = route.body {
        let needed = route.method != Method::PATCH;
        let content = ContentBuilder::new()
            .schema(Some(object(fields, needed)))
            .build();
        let body = RequestBodyBuilder::new()
            .content("application/json", content)
            .required(Some(Required::True));
        operation = operation.request_body(Some(body.build()));
    }
    let answer = |text: &str| {
        let content = ContentBuilder::new().schema(Some(envelope.clone())).build();
        ResponseBuilder::new()
            .description(text)
            .content("application/json", content)
            .build()
    };
    let responses = ResponsesBuilder::new()
        .response("200", answer("Done"))
        .response(
            "4XX",
            answer("Refused: errors says why, each with a pointer to its field"),
        )
        .response("5XX", answer("Not built, or the store did not do it"));
    operation.responses(responses.build())
}

/// With what stands for `{name}` in the path.
fn with_parameters(mut operation: OperationBuilder, path: &str) -> OperationBuilder {
    let names = path.split('/').filter_map(|segment| {
        segment
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
    });
    for name in names {
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)));
        operation = operation.parameter(parameter);
    }
    operation
}

/// The four keys of every answer.
fn described() -> Schema {
    let entry = ObjectBuilder::new()
        .property("code", ObjectBuilder::new().schema_type(Type::Integer))
        .property("message", ObjectBuilder::new().schema_type(Type::String))
        .required("code")
        .required("message");
    let list = ArrayBuilder::new().items(entry).build();
    ObjectBuilder::new()
        .property("success", ObjectBuilder::new().schema_type(Type::Boolean))
        .property("errors", list.clone())
        .property("messages", list)
        .property(
            "result",
            ObjectBuilder::new().schema_type(SchemaType::AnyValue),
        )
        .required("success")
        .required("errors")
        .required("messages")
        .required("result")
        .build()
        .into()
}

fn object(fields: &[Field], needed: bool) -> Schema {
    let mut object = ObjectBuilder::new();
    for field in fields {
        object = object.property(field.name, schema(field.kind, !field.required));
        if needed && field.required {
            object = object.required(field.name);
        }
    }
    object.build().into()
}

fn schema(kind: Kind, nullable: bool) -> Schema {
    let of = |own: Type| match nullable {
        true => SchemaType::from_iter([own, Type::Null]),
        false => SchemaType::new(own),
    };
    let plain = |own| Schema::from(ObjectBuilder::new().schema_type(of(own)).build());
    let list = |items: Schema| {
        let list = ArrayBuilder::new().schema_type(of(Type::Array));
        Schema::from(list.items(RefOr::T(items)).build())
    };
    match kind {
        Kind::Text => plain(Type::String),
        Kind::Number => plain(Type::Number),
        Kind::Whole => plain(Type::Integer),
        Kind::Flag => plain(Type::Boolean),
        Kind::Texts => list(schema(Kind::Text, false)),
        Kind::Objects(fields) => list(object(fields, true)),
        Kind::Object(fields) => match object(fields, true) {
            Schema::Object(mut inner) => {
                inner.schema_type = of(Type::Object);
                inner.into()
            }
            other => other,
        },
        Kind::Map => ObjectBuilder::new()
            .schema_type(of(Type::Object))
            .additional_properties(Some(AdditionalProperties::FreeForm(true)))
            .build()
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_route_is_described() {
        let document: Value = serde_json::from_str(&document()).expect("JSON");
        for route in routes() {
            let method = route.method.as_str().to_lowercase();
            let described = &document["paths"][&route.path][&method];
            assert_eq!(
                described["operationId"], route.operation,
                "{method} {}",
                route.path
            );
            assert_eq!(described["requestBody"].is_object(), route.body.is_some());
        }
        for line in &calls::LINES {
            let method = line.method.as_str().to_lowercase();
            let described = &document["paths"][path_of(line)][&method];
            assert_eq!(described["operationId"], line.operation, "{}", line.path);
        }
        let live = &document["paths"][LIVE]["get"]["responses"]["200"]["content"];
        assert!(live["text/event-stream"].is_object(), "{live}");
    }
}
