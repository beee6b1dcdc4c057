//! Answers that no API server gives: of a login page, a proxy, another web server.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, SERVER};
use http::response::Parts;
use http::{HeaderMap, HeaderName, StatusCode};
use kube::core::Status;
use nodegate_program::sanitize_short;

/// The maximum length of an error's text, in characters. A proxy may answer with a page.
pub(crate) const MAX_DETAIL: usize = 1000;

/// The reason in the `Status` that replaces such an answer. Its message is the whole sentence.
pub(crate) const REASON: &str = "NotKubernetes";

/// Turns an answer that no API server gives into an error as the API has it, and returns that body. The code
/// stays if it says what to do next: 401, 429 and 5xx.
pub(crate) fn replace(head: &mut Parts) -> Option<Bytes> {
    let code = head.status;
    let text = |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
    let what = if let Some(to) = text(LOCATION).filter(|_| code.is_redirection()) {
        format!("HTTP {} to {}", code.as_u16(), to.split(['?', '#']).next().unwrap_or_default())
    } else if code == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        "HTTP 407 of a proxy that wants a login".to_owned()
    } else if is_page(&head.headers) {
        format!("HTTP {} with a web page", code.as_u16())
    } else {
        return None;
    };
    let by = text(SERVER).map_or(String::new(), |server| format!(" ({server})"));
    let message = bounded(&format!("{what}{by}: this is not a Kubernetes API server"));
    let stays =
        matches!(code, StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS) || code.is_server_error();
    head.status = if stays { code } else { StatusCode::BAD_GATEWAY };
    let status = Status::failure(&message, REASON).with_code(head.status.as_u16());
    serde_json::to_vec(&status).ok().map(Bytes::from)
}

/// Returns the start of a text, on one line, with a mark where it is cut.
pub(crate) fn bounded(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    sanitize_short(line.trim(), MAX_DETAIL)
}

fn is_page(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_ascii_lowercase());
    kind.is_some_and(|kind| kind.starts_with(b"text/html") || kind.starts_with(b"application/xhtml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;

    #[test]
    fn what_no_api_server_says_is_one_sentence() {
        for (code, headers, kept, said) in [
            (302, &[("location", "/login?rd=https%3A%2F%2Fapi")][..], 502, "HTTP 302 to /login"),
            (307, &[("location", "https://sso.example/auth#x")], 502, "HTTP 307 to https://sso.example/auth"),
            (200, &[("content-type", "text/html; charset=utf-8")], 502, "HTTP 200 with a web page"),
            (404, &[("content-type", "Text/HTML")], 502, "HTTP 404 with a web page"),
            (
                503,
                &[("content-type", "text/html"), ("server", "nginx/1.25.3")],
                503,
                "HTTP 503 with a web page (nginx/1.25.3)",
            ),
            (401, &[("content-type", "text/html")], 401, "HTTP 401 with a web page"),
            (407, &[], 502, "HTTP 407 of a proxy that wants a login"),
        ] {
            let mut answer = Response::builder().status(code);
            for (name, value) in headers {
                answer = answer.header(*name, *value);
            }
            let mut head = answer.body(()).unwrap().into_parts().0;
            let status: Status = serde_json::from_slice(&replace(&mut head).unwrap()).unwrap();
            let message = format!("{said}: this is not a Kubernetes API server");
            assert_eq!((head.status.as_u16(), status.code, status.message), (kept, kept, message));
        }
    }

    /// 304 has no place to go to, and a server that has too much to do answers in plain text.
    #[test]
    fn what_an_api_server_says_stays() {
        for (code, kind) in
            [(200, "application/json"), (429, "text/plain; charset=utf-8"), (500, "text/plain"), (304, "")]
        {
            let answer = Response::builder().status(code).header(CONTENT_TYPE, kind).body(()).unwrap();
            assert_eq!(replace(&mut answer.into_parts().0), None, "{code}");
        }
    }
}
