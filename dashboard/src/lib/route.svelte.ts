// Which page is shown: the part of the address after `#`. The node serves one page for all.

class Route {
  parts = $state<string[]>([])
  query = $state.raw(new URLSearchParams())

  constructor() {
    this.read()
    addEventListener('hashchange', () => {
      this.read()
      scrollTo(0, 0)
    })
  }

  get page(): string {
    return this.parts[0] ?? ''
  }

  private read(): void {
    const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?')
    this.parts = path
      .split('/')
      .filter((part) => part !== '')
      .map((part) => {
        try {
          return decodeURIComponent(part)
        } catch {
          return part
        }
      })
    this.query = new URLSearchParams(query)
  }
}

export const route = new Route()

export function href(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join('/')}`
}

export function go(...parts: string[]): void {
  location.hash = href(...parts)
}
